import { frontEnd } from "./data/frontend";
import type { ColumnsMessage } from "./data/wire";
import type { Traits } from "./inspector/store";
import { InspectorStore } from "./inspector/store";
import { view } from "./inspector/view";

export default () => frontEnd<Traits, ColumnsMessage, InspectorStore>((model) => new InspectorStore(model), view);
