// The API's types of rules; they are generated from docs/reference/openapi.json.
export type {
  PolicyProblem as Mistake, RuleExplanation as Explained, RuleProblem as Problem, RulesView as Rules,
} from '../lib/api.gen';
