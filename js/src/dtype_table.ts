import { frontEnd } from "./data/frontend";
import type { FeedTraits } from "./data/feed";
import { DtypeFeed } from "./dtypes/feed";
import { View } from "./dtypes/view";
import type { DtypesMessage } from "./dtypes/wire";

export default () => frontEnd<FeedTraits, DtypesMessage, DtypeFeed>((model) => new DtypeFeed(model), (feed, el, life) => new View(feed, el, life));
