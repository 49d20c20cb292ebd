import "./saves.test";
import "./conflict.test";
import "./drafts.test";
import "./judge.test";
import "./adapters.test";
export { all } from "./check";
export { table } from "../table";
export { live } from "./random";
