// Canvases in device pixels.

/** One that is not on the page, by what draws on it. */
export function surface(width = 1, height = 1): CanvasRenderingContext2D {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas.getContext("2d")!;
}

/** Only what differs: setting a size clears the canvas. */
export function resize(canvas: HTMLCanvasElement, width: number, height: number, dpr: number): void {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${width / dpr}px`;
  canvas.style.height = `${height / dpr}px`;
}
