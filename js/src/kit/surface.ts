// A canvas in device pixels.

/** Only what differs: setting a size clears the canvas. */
export function resize(canvas: HTMLCanvasElement, width: number, height: number, dpr: number): void {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${width / dpr}px`;
  canvas.style.height = `${height / dpr}px`;
}
