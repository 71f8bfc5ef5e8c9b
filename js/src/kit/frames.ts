// When to paint: once a frame at most, and only in sight; and again when the page gives other room, colours or pixels.
import { isDark, watchTheme } from "./theme";
import { listen } from "./listen";

export interface Frames {
  schedule(): void;
}

/** `resized`: there is another width, or other device pixels. */
export function framesOf(root: HTMLElement, paint: () => void, resized: () => void, onTheme: () => void, signal: AbortSignal): Frames {
  let frame = 0;
  let isVisible = true;
  /** What the last painting was made for. */
  let width = 0;

  const schedule = (): void => {
    if (frame || !isVisible) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      width = root.clientWidth;
      // None in a detached or collapsed cell; the observer calls again.
      if (width) paint();
    });
  };
  /** A media query matches one resolution: after each change there is a new one to watch. */
  const watchResolution = (): void => {
    if (signal.aborted) return;
    const changed = (): void => {
      resized();
      watchResolution();
    };
    listen(matchMedia(`(resolution: ${devicePixelRatio}dppx)`), "change", changed, { once: true, signal });
  };

  // Its height follows from what we draw.
  const room = new ResizeObserver(() => root.clientWidth !== width && resized());
  room.observe(root);
  // Skipping starts only once the browser has said that we are out of sight.
  const sight = new IntersectionObserver((entries) => {
    isVisible = entries.at(-1)!.isIntersecting;
    if (isVisible) schedule();
  });
  sight.observe(root);
  // At once, out of sight too: no text is ever in the colours of before.
  const dye = (): void => void (root.dataset.gvTheme = isDark() ? "dark" : "light");
  dye();
  watchTheme(() => (dye(), onTheme()), signal);
  watchResolution();
  listen(signal, "abort", () => {
    room.disconnect();
    sight.disconnect();
    cancelAnimationFrame(frame);
  });
  return { schedule };
}
