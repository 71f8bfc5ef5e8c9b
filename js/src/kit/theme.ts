// The colours of the page that we are in, as the canvas needs them.
//
// kit.css holds the tokens (--gv-*), built from JupyterLab's and VS Code's variables with fallbacks. Here
// we only say whether the page is dark, and read what the tokens come to.
import { listen } from "./listen";

export interface Theme {
  muted: string;
  line: string;
  /** Background of a lane where nothing is known. */
  track: string;
  accent: string;
  /** Hatch, dots and outlines. */
  mark: string;
  bad: string;
  onBad: string;
  /** What trains. */
  train: string;
}

const NAMES = ["muted", "line", "track", "accent", "mark", "bad", "onBad", "train"] as const;

export function isDark(): boolean {
  const { body, documentElement: html } = document;
  const lab = body.dataset.jpThemeLight;
  if (lab !== undefined) return lab === "false";
  if (body.matches(".vscode-dark, .vscode-high-contrast")) return true;
  if (body.matches(".vscode-light")) return false;
  // Colab, and marimo.
  const named = html.getAttribute("theme") ?? html.dataset.theme;
  if (named === "dark" || named === "light") return named === "dark";
  if (document.querySelector("html.dark, body.dark")) return true;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Colours as the browser computes them: a custom property would come back unresolved. */
export function readTheme(probe: HTMLElement): Theme {
  const theme = {} as Record<(typeof NAMES)[number], string>;
  for (const name of NAMES) {
    probe.style.color = `var(--gv-${name === "onBad" ? "on-bad" : name})`;
    theme[name] = getComputedStyle(probe).color;
  }
  return theme;
}

/** Call back when the page may have changed its colours. */
export function watchTheme(onChange: () => void, signal: AbortSignal): void {
  let late: ReturnType<typeof setTimeout> | undefined;
  const changed = (): void => {
    onChange();
    // Hosts set the attribute before or after the style sheet arrives.
    clearTimeout(late);
    late = setTimeout(onChange, 400);
  };
  const observer = new MutationObserver(changed);
  const attributes = { attributes: true, attributeFilter: ["class", "style", "theme", "data-theme", "data-jp-theme-light", "data-jp-theme-name"] };
  observer.observe(document.body, attributes);
  observer.observe(document.documentElement, attributes);
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    listen(matchMedia(query), "change", changed, { signal });
  }
  listen(signal, "abort", () => {
    observer.disconnect();
    clearTimeout(late);
  });
}
