// Tells a screen reader when something goes wrong that had not gone wrong before: at most every five seconds.
import { element } from "../kit/element";
import * as format from "../kit/format";
import type { Store } from "../data/store";
import { Flag } from "../data/wire";

const PAUSE_MS = 5000;

export class Announcer {
  readonly element = element("div", "gv-live", { "aria-live": "polite" });
  #known = 0;
  #saidAt = -Infinity;

  update({ survey: { seen }, parameters, quantity: { of } }: Store, now: number): void {
    const bad = parameters.filter((_, place) => (seen[place] ?? 0) & Flag.nonfinite);
    if (bad.length < this.#known) this.#known = 0; // another run
    if (bad.length === this.#known || now - this.#saidAt < PAUSE_MS) return;
    this.#known = bad.length;
    this.#saidAt = now;
    const more = bad.length > 1 ? `, and in ${format.many(bad.length - 1, `other ${of}`)}` : "";
    this.element.textContent = `Not finite: the gradient of ${bad[0]!.name}${more}`;
  }
}
