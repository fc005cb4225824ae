//! The query language: parser, matcher over the vocabulary, translation for a store.
