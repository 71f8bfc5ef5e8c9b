// The parts of a page: what stands above and beside the others is always seen, and of the others the one whose tab is.
import { element } from "../kit/element";
import { messageOf } from "../kit/errors";
import { listen } from "../kit/listen";
import { bytesAt } from "./blobs";
import { Model } from "./model";
import type { Part } from "./model";

interface FrontEnd {
  initialize(about: { model: Model; signal: AbortSignal }): unknown;
  render(about: { model: Model; el: HTMLElement; signal: AbortSignal }): unknown;
}

const text = async (part: Part["script"]): Promise<string> => new TextDecoder().decode(await bytesAt(part));

const styled = new Set<number>();

async function render(part: Part, el: HTMLElement): Promise<void> {
  try {
    if (!styled.has(part.style.blob)) {
      styled.add(part.style.blob);
      document.head.append(element("style", "", {}, await text(part.style)));
    }
    const address = URL.createObjectURL(new Blob([await text(part.script)], { type: "text/javascript" }));
    const { default: make } = (await import(address)) as { default: () => FrontEnd };
    URL.revokeObjectURL(address);
    const model = await Model.of(part);
    const { signal } = new AbortController();
    const widget = make();
    widget.initialize({ model, signal });
    widget.render({ model, el, signal });
  } catch (error) {
    el.textContent = `gradviz could not draw: ${messageOf(error)}`;
  }
}

/** Show parts in a box. Of those behind a tab each is drawn when it is first looked at. */
export async function shownIn(box: HTMLElement, parts: readonly Part[]): Promise<void> {
  const at = (place: Part["place"]): readonly Part[] => parts.filter((part) => part.place === place);
  const drawn: Promise<void>[] = [];
  const fixed = (place: "top" | "side"): void => {
    for (const part of at(place)) {
      const el = element("section", `gv-page-${place}`, { "aria-label": part.label });
      box.append(el);
      drawn.push(render(part, el));
    }
  };
  box.classList.toggle("gv-page-wide", at("side").length > 0);
  fixed("top");
  if (at("tab").length) box.append(tabs(at("tab"), drawn));
  fixed("side");
  await Promise.all(drawn);
}

function tabs(parts: readonly Part[], drawn: Promise<void>[]): HTMLElement {
  const list = element("div", "gv-page-tabs", { role: "tablist", "aria-label": "pictures" });
  const pairs = parts.map((part, i) => {
    const tab = element("button", "gv-page-tab", { type: "button", role: "tab", id: `gv-tab-${i}`, "aria-controls": `gv-panel-${i}` }, part.label);
    const panel = element("section", "gv-page-panel", { role: "tabpanel", id: `gv-panel-${i}`, "aria-labelledby": `gv-tab-${i}` });
    return { part, tab, panel };
  });
  const choose = (chosen: number): void => {
    pairs.forEach(({ part, tab, panel }, i) => {
      const isChosen = i === chosen;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      panel.hidden = !isChosen;
      if (isChosen && !panel.hasChildNodes()) {
        const el = element("div", "");
        panel.append(el);
        drawn.push(render(part, el));
      }
    });
  };
  pairs.forEach(({ tab }, i) => listen(tab, "click", () => choose(i)));
  listen(list, "keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const now = pairs.findIndex(({ tab }) => tab.tabIndex === 0);
    const next = (now + step + pairs.length) % pairs.length;
    choose(next);
    pairs[next]!.tab.focus();
    event.preventDefault();
  });
  list.append(...pairs.map(({ tab }) => tab));
  list.hidden = pairs.length < 2;
  choose(0);
  return element("div", "gv-page-main", {}, list, ...pairs.map(({ panel }) => panel));
}
