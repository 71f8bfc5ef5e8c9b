// Hearing of what happens to an element.

export function listen<K extends keyof HTMLElementEventMap>(
  target: HTMLElement | AbortSignal | MediaQueryList,
  name: K,
  act: (event: HTMLElementEventMap[K]) => void,
  options?: AddEventListenerOptions,
): void {
  target.addEventListener(name, act as EventListener, options);
}
