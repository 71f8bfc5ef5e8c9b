// What is selected: in all views of a widget, and in Python.

export interface Selection {
  parameters: readonly string[];
  /** [start, stop). */
  iterations: readonly [number, number];
}
