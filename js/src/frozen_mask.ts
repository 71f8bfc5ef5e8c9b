import { frontEnd } from "./data/frontend";
import type { FeedTraits } from "./data/feed";
import type { MaskMessage } from "./mask/store";
import { MaskStore } from "./mask/store";
import { View } from "./mask/view";

export default () => frontEnd<FeedTraits, MaskMessage, MaskStore>((model) => new MaskStore(model), (store, el, life) => new View(store, el, life));
