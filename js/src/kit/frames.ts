// When to paint: once a frame at most, and only in sight; and again when the page gives other room, colours or pixels.
import { watchTheme } from "./theme";
import { listen } from "./listen";

export class Frames {
  #frame = 0;
  #visible = true;
  /** What the last painting was made for. */
  #width = 0;

  /** `resized`: there is another width, or other device pixels. */
  constructor(
    private readonly root: HTMLElement,
    private readonly paint: () => void,
    private readonly resized: () => void,
    onTheme: () => void,
    private readonly signal: AbortSignal,
  ) {
    // Its height follows from what we draw.
    const room = new ResizeObserver(() => root.clientWidth !== this.#width && resized());
    room.observe(root);
    // Skipping starts only once the browser has said that we are out of sight.
    const sight = new IntersectionObserver((entries) => {
      this.#visible = entries.at(-1)!.isIntersecting;
      if (this.#visible) this.schedule();
    });
    sight.observe(root);
    watchTheme(onTheme, signal);
    this.#watchResolution();
    listen(signal, "abort", () => {
      room.disconnect();
      sight.disconnect();
      cancelAnimationFrame(this.#frame);
    });
  }

  schedule(): void {
    if (this.#frame || !this.#visible) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#width = this.root.clientWidth;
      // None in a detached or collapsed cell; the observer calls again.
      if (this.#width) this.paint();
    });
  }

  /** A media query matches one resolution: after each change there is a new one to watch. */
  #watchResolution(): void {
    if (this.signal.aborted) return;
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    const changed = (): void => {
      this.resized();
      this.#watchResolution();
    };
    listen(query, "change", changed, { once: true, signal: this.signal });
  }
}
