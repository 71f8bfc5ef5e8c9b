import { frontEnd } from "./data/frontend";
import type { FeedTraits } from "./data/feed";
import { PanelStore } from "./panel/store";
import { view } from "./panel/view";
import type { PanelMessage } from "./panel/wire";

export default () => frontEnd<FeedTraits, PanelMessage, PanelStore>((model) => new PanelStore(model), view);
