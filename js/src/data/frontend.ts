// The entry of a widget: an anywidget front end (AFM). A factory, because some hosts evaluate the module once for many
// widgets: nothing lives at the level of the module. The feed belongs to the model and is shared by its views.
import type { AnyModel, InitializeProps, RenderProps } from "@anywidget/types";
import { element, setText } from "../kit/element";
import { messageOf } from "../kit/errors";
import { whenSized } from "../kit/sized";
import type { Feed, FeedTraits } from "./feed";
import type { AnswerMessage, Buffer, ColumnsMessage } from "./wire";

/** Hosts older than anywidget 0.11 give no signal and expect a function that cleans up. */
function lifetime(signal: AbortSignal | undefined): readonly [AbortSignal, () => void] {
  const own = new AbortController();
  const end = (): void => own.abort();
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end);
  return [own.signal, end];
}

/** `show`: make a view of a feed in an element, for as long as the signal lives. */
export function frontEnd<T extends FeedTraits, M extends ColumnsMessage, F extends Feed<T, M>>(make: (model: AnyModel<T>) => F, show: (feed: F, el: HTMLElement, life: AbortSignal) => unknown) {
  let feed: F | undefined;

  function listen(model: AnyModel<T>, signal: AbortSignal): F {
    const made = make(model);
    const onMessage = (message: M | AnswerMessage, buffers: Buffer[]): void => {
      try {
        made.receive(message, buffers);
      } catch (error) {
        made.fail(error);
      }
    };
    const on = (name: string, act: (message: M, buffers: Buffer[]) => void): void => {
      model.on(name, act);
      signal.addEventListener("abort", () => model.off(name, act));
    };
    on("msg:custom", onMessage);
    for (const [name, act] of Object.entries(made.traits)) on(`change:${name}`, act);
    made.hello();
    return made;
  }

  return {
    // Here and not in render: messages sent before the widget is shown must not be lost.
    initialize({ model, signal }: InitializeProps<T>) {
      const [life, end] = lifetime(signal);
      feed = listen(model, life);
      return end;
    },
    render({ model, el, signal }: RenderProps<T>) {
      const [life, end] = lifetime(signal);
      try {
        feed ??= listen(model, life);
        const of = feed;
        // Above every view: that there is no kernel any more, once that is known.
        const lost = element("div", "gv-lost", { role: "status" });
        const forget = of.subscribe(() => setText(lost, of.isLost ? "no kernel: this picture is as it was" : ""));
        el.append(lost);
        show(of, el, life);
        // One that lies hidden, behind a tab, asks for nothing.
        whenSized(el.querySelector<HTMLElement>(".gv") ?? el, life, () => {
          of.hello(true);
          life.addEventListener("abort", () => of.bye());
        });
        life.addEventListener("abort", () => {
          forget();
          lost.remove();
        });
      } catch (error) {
        // No view to show it in: a plain line must do.
        el.textContent = `gradviz could not draw: ${messageOf(error)}`;
      }
      return end;
    },
  };
}
