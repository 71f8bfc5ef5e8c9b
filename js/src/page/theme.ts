// Light or dark: what the reader's system says, until they say otherwise.
import { button } from "../kit/buttons";
import { listen } from "../kit/listen";

export function themeSwitch(): HTMLElement {
  const { dataset } = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = (): void => {
    dataset.theme = system.matches ? "dark" : "light";
  };
  const ends = new AbortController();
  follow();
  listen(system, "change", follow, { signal: ends.signal });
  return button("theme", "light or dark", () => {
    ends.abort();
    dataset.theme = dataset.theme === "dark" ? "light" : "dark";
  });
}
