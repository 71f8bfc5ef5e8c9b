// The entry: an anywidget front end (AFM). A factory, because some hosts evaluate the module once for many
// widgets: nothing lives at the level of the module. The store belongs to the model and is shared by its views.
import type { InitializeProps, RenderProps } from "@anywidget/types";
import { Store } from "./data/store";
import type { Model, Traits } from "./data/store";
import { view } from "./heatmap/view";
import type { AnswerMessage, Buffer, ColumnsMessage } from "./data/wire";

/** Hosts older than anywidget 0.11 give no signal and expect a function that cleans up. */
function lifetime(signal: AbortSignal | undefined): { signal: AbortSignal; end: () => void } {
  const own = new AbortController();
  const end = (): void => own.abort();
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end, { once: true });
  return { signal: own.signal, end };
}

export default () => {
  let store: Store | undefined;

  function listen(model: Model, signal: AbortSignal): Store {
    const made = new Store(model);
    const onMessage = (message: ColumnsMessage | AnswerMessage, buffers: Buffer[]): void => {
      try {
        made.receive(message, buffers);
      } catch (error) {
        made.fail(error);
      }
    };
    const listeners = {
      "change:_parameters": () => made.readParameters(),
      "change:_colours": () => made.readColours(),
      "change:selection": () => made.onSelection(),
    } as const;
    const names = Object.keys(listeners) as (keyof typeof listeners)[];
    model.on("msg:custom", onMessage);
    for (const name of names) model.on(name, listeners[name]);
    signal.addEventListener("abort", () => {
      model.off("msg:custom", onMessage);
      for (const name of names) model.off(name, listeners[name]);
    });
    made.hello();
    return made;
  }

  return {
    // Here and not in render: messages sent before the widget is shown must not be lost.
    initialize({ model, signal }: InitializeProps<Traits>) {
      const { signal: life, end } = lifetime(signal);
      store = listen(model, life);
      return end;
    },
    render({ model, el, signal }: RenderProps<Traits>) {
      const { signal: life, end } = lifetime(signal);
      try {
        store ??= listen(model, life);
        view(store, el, life);
        store.hello(true);
        life.addEventListener("abort", () => store!.bye());
      } catch (error) {
        // No view to show it in: a plain line must do.
        el.textContent = `gradviz could not draw: ${error instanceof Error ? error.message : String(error)}`;
      }
      return end;
    },
  };
};
