// Not too often: what a pointer changes sixty times a second is saved a few times, the last one always.

/** Calls `act` at once, but not again within so many milliseconds: what was asked for then is done once, at their end. */
export function throttled(ms: number, act: () => void): () => void {
  let free = -Infinity;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = (): void => {
    free = performance.now() + ms;
    act();
  };
  return () => {
    clearTimeout(timer);
    const wait = free - performance.now();
    if (wait > 0) timer = setTimeout(run, wait);
    else run();
  };
}
