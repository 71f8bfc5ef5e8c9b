// When an element is there for the first time: what is hidden, or not on the page yet, has no size.

export function whenSized(target: HTMLElement, signal: AbortSignal, act: () => void): void {
  const room = new ResizeObserver(() => {
    if (signal.aborted || !target.clientWidth) return;
    room.disconnect();
    act();
  });
  room.observe(target);
  signal.addEventListener("abort", () => room.disconnect());
}
