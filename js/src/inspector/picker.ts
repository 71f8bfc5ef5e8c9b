// Choosing what to look into by words of its name: the browser's own list of suggestions.
import { element } from "../kit/element";
import { listen } from "../kit/listen";
import { matcher } from "../rows/order";

export interface Picker {
  element: HTMLElement;
  update(names: readonly string[]): void;
}

let pickers = 0;

export function pickerOf(choose: (name: string) => void): Picker {
  const id = `gv-names-${(pickers += 1)}-${Math.random()}`;
  const list = element("datalist", "", { id });
  const input = element("input", "gv-filter", { list: id, placeholder: "look into another", "aria-label": "look into another", spellcheck: "false", autocomplete: "off" });
  let known: readonly string[] = [];

  /** A whole name, or the only one that holds these words. */
  function meant(): string | undefined {
    const fits = known.filter(matcher(input.value));
    return known.includes(input.value) ? input.value : fits.length === 1 ? fits[0] : undefined;
  }

  const take = (name: string | undefined): void => {
    input.setCustomValidity(name === undefined && input.value ? "no such name, or several" : "");
    if (name === undefined) return;
    choose(name);
    input.value = "";
  };
  listen(input, "input", () => known.includes(input.value) && take(input.value));
  listen(input, "change", () => input.value && take(meant()));
  return {
    element: element("div", "gv-picker", {}, input, list),

    update(names) {
      if (names === known) return;
      known = names;
      list.replaceChildren(...names.map((name) => element("option", "", { value: name })));
    },
  };
}
