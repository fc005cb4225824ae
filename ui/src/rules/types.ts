// The API's types of rules and held flows; they are generated from docs/reference/openapi.json.
import type { HeldFlow } from '../lib/api.gen';

/** What the card of a held flow shows. */
export type ShownHold = Omit<HeldFlow, 'client' | 'user' | 'process'>;

export type {
  CheckedRules as Checked, HeldFlow, PolicyProblem as Mistake, RuleExplanation as Explained, RuleProblem as Problem,
  RulesView as Rules,
} from '../lib/api.gen';
