// The tabs in their order.
import { answer } from "./tabs/answer.js";
import { attention } from "./tabs/attention.js";
import { choose } from "./tabs/choose.js";
import { classify } from "./tabs/classify.js";
import { entities } from "./tabs/entities.js";
import { gap } from "./tabs/gap.js";
import { left } from "./tabs/left.js";
import { next } from "./tabs/next.js";
import { run } from "./tabs/run.js";
import { search } from "./tabs/search.js";
import { tokens } from "./tabs/tokens.js";
import { training } from "./tabs/training.js";
import { words } from "./tabs/words.js";

export const TABS = [tokens, gap, attention, next, answer, entities, classify, choose, search, words, training, run, left];
