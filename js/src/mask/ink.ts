// What states are painted with: a colour for what trains; hatch, dots, dashes and an outline for what does not.
import type { Theme } from "../kit/theme";
import { State, STATES } from "./state";

type Context = CanvasRenderingContext2D;

export class Ink {
  readonly #tiles = new Map<string, CanvasPattern>();

  constructor(
    private readonly theme: Theme,
    private readonly dpr: number,
  ) {}

  /** What trains is at the bottom, what does not above it: each state that a run of iterations has gets a band. */
  paint(x: Context, bits: number, from: number, to: number, top: number, height: number): void {
    const states = STATES.filter(({ bit }) => bits & bit).map(({ bit }) => bit);
    const [first] = states;
    if (first === undefined) return;
    const lower = states.length === 1 ? height : first === State.trained ? Math.round(height / 2) : Math.round(height / states.length);
    let bottom = top + height;
    states.forEach((state, i) => {
      const left = states.length - i;
      const band = i === 0 ? lower : Math.round((bottom - top) / left);
      bottom -= band;
      this.#band(x, state, from, to, bottom, band);
    });
  }

  /** A place where nothing is known yet. */
  blank(x: Context, from: number, to: number, top: number, height: number): void {
    x.fillStyle = this.theme.track;
    x.fillRect(from, top, to - from, height);
  }

  #band(x: Context, state: number, from: number, to: number, top: number, height: number): void {
    const { theme, dpr } = this;
    const width = to - from;
    const line = Math.max(1, Math.round(dpr));
    if (state === State.trained) {
      x.fillStyle = theme.train;
      x.fillRect(from, top, width, height);
      return;
    }
    if (state !== State.not_recorded) this.blank(x, from, to, top, height);
    if (state === State.frozen) this.#fill(x, this.#hatch(), from, top, width, height, 0);
    else if (state === State.unused) this.#fill(x, this.#dots(height), from, top, width, height, top);
    else {
      const ink = state === State.not_optimized ? this.#dashes() : theme.mark;
      for (const y of [top, top + height - line]) this.#fill(x, ink, from, y, width, line, y);
      x.fillStyle = theme.mark;
      for (const left of [from, to - line]) x.fillRect(left, top, line, height);
    }
  }

  /** Patterns are tied to the canvas sideways, so that a run can grow without a seam. */
  #fill(x: Context, ink: CanvasPattern | string, from: number, top: number, width: number, height: number, origin: number): void {
    x.save();
    x.translate(0, origin);
    x.fillStyle = ink;
    x.fillRect(from, top - origin, width, height);
    x.restore();
  }

  #hatch(): CanvasPattern {
    const side = Math.round(5 * this.dpr);
    return this.#tile("hatch", side, side, (x) => {
      x.strokeStyle = this.theme.mark;
      x.lineWidth = this.dpr;
      x.beginPath();
      for (const shift of [-side, 0, side]) {
        x.moveTo(shift - 1, side + 1);
        x.lineTo(shift + side + 1, -1);
      }
      x.stroke();
    });
  }

  #dots(height: number): CanvasPattern {
    return this.#tile(`dots ${height}`, Math.round(7 * this.dpr), height, (x) => {
      x.fillStyle = this.theme.mark;
      x.beginPath();
      x.arc(3.5 * this.dpr, height / 2, Math.min(1.5 * this.dpr, height / 2), 0, 7);
      x.fill();
    });
  }

  #dashes(): CanvasPattern {
    return this.#tile("dashes", Math.round(7 * this.dpr), 1, (x) => {
      x.fillStyle = this.theme.mark;
      x.fillRect(0, 0, Math.round(4 * this.dpr), 1);
    });
  }

  #tile(key: string, width: number, height: number, draw: (x: Context) => void): CanvasPattern {
    let pattern = this.#tiles.get(key);
    if (!pattern) {
      const tile = document.createElement("canvas");
      tile.width = width;
      tile.height = height;
      const x = tile.getContext("2d")!;
      draw(x);
      this.#tiles.set(key, (pattern = x.createPattern(tile, "repeat")!));
    }
    return pattern;
  }
}
