import { frontEnd } from "./data/frontend";
import type { Traits } from "./data/store";
import { Store } from "./data/store";
import { view } from "./heatmap/view";
import type { ColumnsMessage } from "./data/wire";

export default () => frontEnd<Traits, ColumnsMessage, Store>((model) => new Store(model), view);
