// Looking for a place in what is sorted.

/** The first place in [0, end) for which something holds that holds for all after it; `end` if for none. */
export function firstPlace(end: number, holds: (place: number) => boolean): number {
  let from = 0;
  while (from < end) {
    const middle = (from + end) >>> 1;
    if (holds(middle)) end = middle;
    else from = middle + 1;
  }
  return from;
}
