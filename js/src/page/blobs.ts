// The bytes that a page carries with it: deflated, in base64, each in an element of its own.

/** Where bytes lie. */
export interface Blob64 {
  blob: number;
}

export const isBlob = (value: unknown): value is Blob64 => typeof value === "object" && value !== null && "blob" in value;

export async function bytesAt({ blob }: Blob64): Promise<Uint8Array<ArrayBuffer>> {
  const packed = atob(document.getElementById(`gv-blob-${blob}`)!.textContent!);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}
