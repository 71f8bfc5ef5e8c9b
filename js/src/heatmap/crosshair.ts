// The crosshair: which cell is looked at, by pointer or by keys. Looking never asks the kernel.
import { around, pixelOf } from "./cells";
import { cursorIn } from "./cursor";
import type { Places } from "./cursor";
import { sentence } from "./describe";
import type { Link } from "../data/link";
import { boxOf, element, setText } from "../kit/element";
import { listen } from "../kit/listen";
import { PITCH } from "../rows/rows";
import type { Place, Scene, Spot } from "./scene";
import { cellAt, cellOf, LOSS, nameAt, spotOf, stepped, tell } from "./scene";

/** Once keys rest so long, in milliseconds, the cell is spoken of: a moving mouse would never stop talking. */
const REST_MS = 150;

/** A pointer moves on with the mouse, so it stays a place on the screen; keys stay with a row and an iteration. */
type At = { clientX: number; clientY: number; isLoss: boolean } | ({ name: string } & Spot);

export interface Acts {
  fold(row: number): void;
  select(from: Spot, to: Spot): void;
  deselect(): void;
  /** Look into the parameter of this name. */
  focus(name: string, iteration: number): void;
}

export interface Crosshair {
  /** The picture was painted anew. */
  update(scene: Scene): void;
  /** Another widget of the run points at another iteration, or at none. */
  follow(): void;
  /** Hold on to the cell that was clicked; let it go if it was held before. */
  press(event: PointerEvent): void;
  /** Scroll the lanes, not the page, so that the row at this height is in view. */
  reveal(top: number): void;
  /** The cell that is looked at. */
  here(): Spot | null;
}

export function crosshairIn(places: Places, acts: Acts, link: Link, signal: AbortSignal): Crosshair {
  const { root, region, scroll, plot, lossLane } = places;
  const cursor = cursorIn(places);
  const live = element("div", "gv-live", { "aria-live": "polite" });
  let at: At | null = null;
  let scene: Scene | null = null;
  let shown: Place | null = null;
  /** Where a selection by keys began. */
  let anchor: Spot | null = null;
  /** What is looked at stays so, wherever the pointer goes. */
  let isPinned = false;
  let rest: ReturnType<typeof setTimeout> | undefined;

  root.append(live);
  for (const target of [plot, lossLane]) {
    const move = ({ clientX, clientY }: PointerEvent): void => {
      if (isPinned) return;
      goTo({ clientX, clientY, isLoss: target === lossLane });
    };
    listen(target, "pointermove", move, { signal });
    listen(target, "pointerdown", move, { signal });
    listen(target, "pointerleave", () => at && !isOfKeys(at) && clear(), { signal });
  }
  listen(region, "keydown", onKey, { signal });
  listen(region, "blur", () => at && isOfKeys(at) && !isPinned && clear(), { signal });
  listen(scroll, "scroll", refresh, { signal, passive: true });
  listen(signal, "abort", () => clearTimeout(rest));

  const here = (): Spot | null => scene && shown && spotOf(scene, shown);

  return {
    update(painted) {
      scene = painted;
      refresh();
    },
    follow: refresh,
    press,
    reveal,
    here,
  };

  function press({ clientX, clientY }: PointerEvent): void {
    const held = isPinned && JSON.stringify(shown);
    pin(false);
    goTo({ clientX, clientY, isLoss: false });
    if (held !== JSON.stringify(shown)) togglePin();
  }

  function pin(isHeld: boolean): void {
    isPinned = isHeld;
    root.classList.toggle("gv-pinned", isHeld);
  }

  function togglePin(): void {
    const spot = here();
    if (!spot || spot.row === LOSS) return;
    pin(!isPinned);
    if (isPinned) acts.focus(nameAt(scene!, shown!), spot.iteration);
    goToSpot(spot);
  }

  function clear(): void {
    pin(false);
    clearTimeout(rest);
    setText(live, "");
    goTo(null);
  }

  /** Look there, and let the other widgets of the run know. */
  function goTo(there: At | null): void {
    at = there;
    refresh();
    const spot = here();
    link.tell("cursor", spot && { iteration: spot.iteration });
  }

  function goToSpot(spot: Spot): void {
    goTo({ name: scene!.layout.rows[spot.row]!.name, ...spot });
  }

  function refresh(): void {
    const found = scene && at && find(scene, at);
    if (found) return show(scene!, found);
    shown = null;
    const { cursor: elsewhere } = link.shared;
    const pixel = scene && elsewhere && pixelOf(scene.pixels, scene.columns, elsewhere.iteration);
    if (pixel == null) return cursor.hide();
    const [from, to] = around(scene!.pixels, pixel);
    cursor.follow(from / scene!.dpr, to / scene!.dpr);
  }

  function find(painted: Scene, where: At): Place | null {
    if (isOfKeys(where)) return cellOf(painted, where.name, where);
    const box = boxOf(plot);
    return cellAt(painted, where.clientX - box.left, where.clientY - box.top, where.isLoss);
  }

  function show(painted: Scene, place: Place): void {
    const { description, from, to } = tell(painted, place);
    cursor.show(description, from / painted.dpr, to / painted.dpr, painted.layout.rows[place.row]?.top ?? null);
    shown = place;
    if (!at || !isOfKeys(at)) return;
    clearTimeout(rest);
    rest = setTimeout(() => setText(live, sentence(description)), REST_MS);
  }

  function onKey(event: KeyboardEvent): void {
    if (!scene || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    if (key === "Escape") {
      if (!at) return acts.deselect();
      clear();
    } else if (key === " ") {
      if (!shown || shown.row === LOSS) return;
      acts.fold(shown.row);
    } else if (key === "Enter") {
      togglePin();
    } else {
      const next = stepped(scene, key, shown);
      if (!next) return;
      anchor = event.shiftKey ? (anchor ?? here()) : null;
      goToSpot(next);
      reveal(scene.layout.rows[next.row]!.top);
      if (anchor) acts.select(anchor, next);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function reveal(top: number): void {
    if (top < scroll.scrollTop) scroll.scrollTop = top - PITCH;
    else if (top + PITCH > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + 2 * PITCH - scroll.clientHeight;
  }
}

const isOfKeys = (at: At): at is { name: string } & Spot => "name" in at;
