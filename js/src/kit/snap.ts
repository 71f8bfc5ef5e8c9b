// A part of the page as a picture: its canvases, its texts and its plain grounds, where and as they are.
import { boxOf } from "./element";
import { surface } from "./surface";

/** `leave`: a selector of what is not in the picture. */
export function snap(root: HTMLElement, leave: string): HTMLCanvasElement {
  const { left, top, width, height } = boxOf(root);
  const scale = devicePixelRatio || 1;
  const x = surface(Math.ceil(width * scale), Math.ceil(height * scale));
  x.scale(scale, scale);
  x.translate(-left, -top);
  x.textBaseline = "middle";
  x.imageSmoothingEnabled = false;
  x.fillStyle = groundOf(root);
  x.fillRect(left, top, width, height);
  paint(x, root, leave);
  return x.canvas;
}

/** The first colour behind an element. */
function groundOf(element: Element | null): string {
  for (; element; element = element.parentElement) {
    const { backgroundColor } = getComputedStyle(element);
    if (!isClear(backgroundColor)) return backgroundColor;
  }
  return "white";
}

const isClear = (colour: string): boolean => /^rgba\(.*, 0\)$|transparent/.test(colour);

function paint(x: CanvasRenderingContext2D, parent: HTMLElement, leave: string): void {
  for (const child of parent.childNodes) {
    if (child instanceof Text) words(x, child, getComputedStyle(parent));
    if (!(child instanceof HTMLElement) || child.matches(leave)) continue;
    const style = getComputedStyle(child);
    if (style.display === "none" || style.visibility === "hidden") continue;
    const box = boxOf(child);
    const { left, top, width, height } = box;
    x.save();
    if (style.overflowY !== "visible") {
      // What is scrolled out of sight.
      x.beginPath();
      x.rect(left, top, width, height);
      x.clip();
    }
    if (!isClear(style.backgroundColor)) {
      x.fillStyle = style.backgroundColor;
      x.fillRect(left, top, width, height);
    }
    if (child instanceof HTMLCanvasElement) x.drawImage(child, left, top, width, height);
    else if (child instanceof HTMLInputElement) write(x, child.value, box, style);
    else paint(x, child, leave);
    x.restore();
  }
}

/** Each where it stands: the lines of a long text break as they do in the page. */
function words(x: CanvasRenderingContext2D, text: Text, style: CSSStyleDeclaration): void {
  const range = document.createRange();
  for (const { 0: word, index } of text.data.matchAll(/\S+/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    write(x, word, boxOf(range), style);
  }
}

function write(x: CanvasRenderingContext2D, text: string, { left, top, height }: DOMRect, { font, color }: CSSStyleDeclaration): void {
  x.font = font;
  x.fillStyle = color;
  x.fillText(text, left, top + height / 2);
}
