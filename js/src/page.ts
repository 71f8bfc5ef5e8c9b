// A page of its own: widgets without Jupyter, Python or the network. Each runs by its own script, as it does anywhere.
import type { Part } from "./page/model";
import { shownIn } from "./page/parts";
import { themeSwitch } from "./page/theme";

const parts = JSON.parse(document.getElementById("gv-parts")!.textContent!) as Part[];
document.querySelector(".gv-page-head")!.append(themeSwitch());
await shownIn(document.querySelector<HTMLElement>(".gv-page")!, parts);
