//! The corridor: listeners' roles, phases, verdicts, the plan, and the one table from errors to responses.
