// Painting what is new, everywhere in a view.
import type { Announcer } from "./announcer";
import type { Axis } from "../time/axis";
import type { Brush } from "./brush";
import type { Domain } from "../data/colour";
import { setLine } from "../kit/element";
import type { Labels } from "../rows/labels";
import { lossLane } from "../data/lanes";
import type { Legend } from "./legend";
import { noteText } from "./legend";
import type { Lens } from "../time/lens";
import type { LossLane } from "./losslane";
import type { Marks } from "./marks";
import { mostIterations, placeColumns } from "../data/pixels";
import type { Plot } from "./plot";
import type { Rangebar } from "../time/rangebar";
import type { Scene } from "./scene";
import type { Source } from "../data/source";
import type { Store } from "../data/store";
import { summary } from "./summary";
import type { Theme } from "../kit/theme";
import type { Toolbar } from "./toolbar";

export interface Parts {
  store: Store;
  source: Source;
  lens: Lens;
  plot: Plot;
  loss: LossLane;
  axis: Axis;
  range: Rangebar;
  labels: Labels;
  legend: Legend;
  toolbar: Toolbar;
  brush: Brush;
  announcer: Announcer;
}

/** What it is painted with: colours and marks, and device pixels, to a css pixel and of a lane. */
export interface Brushes {
  theme: Theme;
  marks: Marks;
  dpr: number;
  width: number;
  byHand: Domain | null;
}

export function paint(parts: Parts, { theme, marks, dpr, width, byHand }: Brushes): Scene {
  const { store, source, lens, plot, loss, axis, range, labels, legend, toolbar, brush, announcer } = parts;
  const { end } = store;
  lens.update(end, store.run.iterations, width / dpr);
  const { extent } = lens;
  const now = performance.now();
  source.want(extent, width, now);
  const { columns, level, exact } = source.columnsFor(extent);
  const { quantity, scale, table, survey } = source.shown;
  const { seen } = survey;
  const domain = byHand ?? source.domain;
  const pixels = placeColumns(columns, extent, width);
  // The first device pixel that this painting touches.
  const from = plot.paint(columns, { pixels, domain, scale, table, marks });

  const lossOf = lossLane(columns);
  loss.show(!store.quantity.runs && (store.survey.hasLoss || !end));
  loss.paint(lossOf, store.loss, pixels, theme, marks, dpr);
  axis.element.style.visibility = end ? "" : "hidden";
  axis.update(store.epochs, store.firstEpoch, extent, width / dpr, (text) => labels.measure(text, "axis"));
  range.update();
  toolbar.zoom.update(lens);
  toolbar.updateSelection(store);
  toolbar.updateChoice(source, store.stages);
  brush.update();
  announcer.update(store, now);
  const note = source.error || (source.isWaiting ? "waiting for the kernel …" : noteText(level, mostIterations(pixels, columns, exact), scale.which));
  legend.update(quantity.label, domain, byHand !== null, seen, note);
  setLine(plot.empty, store.run.nothing ?? (plot.layout.rows.length ? null : `no ${quantity.of} has such a name`));
  plot.canvas.setAttribute("aria-label", summary({ quantity, parameters: store.parameters, overview: store.overview, run: store.run, domain, seen }));
  const { start, span } = extent;
  Object.assign(plot.canvas.dataset, { iterations: end, start, span, lo: domain?.lo ?? "", hi: domain?.hi ?? "", seq: store.newest, level, from });
  return {
    store,
    quantity,
    scale,
    layout: plot.layout,
    columns,
    exact,
    laneOf: (row) => plot.lanes.lane(columns, row.members),
    lossLane: lossOf,
    pixels,
    dpr,
    chipsOf: (row) => plot.chipsOf(row),
    lossChips: loss.chips,
  };
}
