//! A fake LLM provider.
