// A pointer that is pressed on a target and goes anywhere.
import { listen } from "./listen";

export interface Drag {
  move(event: PointerEvent): void;
  end?(event: PointerEvent): void;
}

export function onDrag(target: HTMLElement, begin: (event: PointerEvent) => Drag, signal: AbortSignal): void {
  const onDown = (down: PointerEvent): void => {
    if (down.button !== 0) return;
    const drag = begin(down);
    target.setPointerCapture(down.pointerId);
    const life = new AbortController();
    listen(target, "pointermove", (event) => drag.move(event), { signal: life.signal });
    for (const name of ["pointerup", "pointercancel"] as const) {
      const onEnd = (event: PointerEvent): void => {
        life.abort();
        if (name === "pointerup") drag.end?.(event);
      };
      listen(target, name, onEnd, { signal: life.signal });
    }
  };
  listen(target, "pointerdown", onDown, { signal });
}
