//! Runs the ONNX model, in builds with the feature `ner`.

#[cfg(not(feature = "ner"))]
pub(super) use self::absent::Network;
#[cfg(feature = "ner")]
pub(super) use self::onnx::Network;

#[cfg(feature = "ner")]
mod onnx {
    use std::sync::Arc;

    use rten::{Dimension, Model, NodeId, RunOptions, ThreadPool, Value};

    /// What the inputs of a model are for.
    #[derive(Clone, Copy)]
    enum Input {
        Ids,
        Mask,
        Types,
    }

    pub(in super::super) struct Network {
        model: Model,
        inputs: Vec<(NodeId, Input)>,
        output: NodeId,
        options: RunOptions,
    }

    impl Network {
        /// Loads a model whose output has a score for each of `labels`, and runs it once on `window` tokens.
        pub fn load(bytes: Vec<u8>, threads: usize, labels: usize, window: usize) -> Result<Self, String> {
            let model = Model::load(bytes).map_err(|e| format!("it cannot be loaded: {e}"))?;
            let name = |id: NodeId| model.node_info(id).and_then(|n| n.name().map(str::to_owned)).unwrap_or_default();
            let input = |id: &NodeId| match name(*id).as_str() {
                "input_ids" => Ok((*id, Input::Ids)),
                "attention_mask" => Ok((*id, Input::Mask)),
                "token_type_ids" => Ok((*id, Input::Types)),
                other => Err(format!(
                    "it has the input `{other}`; only input_ids, attention_mask and token_type_ids are known"
                )),
            };
            let inputs = model.input_ids().iter().map(input).collect::<Result<Vec<_>, _>>()?;
            let [output] = *model.output_ids() else {
                return Err("it must have one output, the scores of the labels (logits)".into());
            };
            let shape = model.node_info(output).and_then(|n| n.shape()).unwrap_or_default();
            if let Some(Dimension::Fixed(n)) = shape.last()
                && *n != labels
            {
                return Err(format!("it has {n} outputs, and config.json lists {labels} labels"));
            }
            let pool = Arc::new(ThreadPool::with_num_threads(threads));
            let options = RunOptions::default().with_thread_pool(Some(pool));
            let network = Self { model, inputs, output, options };
            // A file that does not fit shows it now, and not with the first request.
            let scores = network.run(&vec![0; window]);
            let scores = scores.map_err(|e| format!("a window of {window} tokens (redact.model.window) fails: {e}"))?;
            if scores.len() != window * labels {
                return Err(format!("it has {} outputs, and config.json lists {labels} labels", scores.len() / window));
            }
            Ok(network)
        }

        /// The scores of all labels, token by token.
        pub fn run(&self, ids: &[i32]) -> Result<Vec<f32>, String> {
            let mut inputs = Vec::with_capacity(self.inputs.len());
            for (node, input) in &self.inputs {
                let values = match input {
                    Input::Ids => ids.to_vec(),
                    Input::Mask => vec![1; ids.len()],
                    Input::Types => vec![0; ids.len()],
                };
                let value = Value::from_shape([1, ids.len()], values).map_err(|e| e.to_string())?;
                inputs.push((*node, value.into()));
            }
            let outputs = self.model.run_n(inputs, [self.output], Some(self.options.clone()));
            let [scores] = outputs.map_err(|e| format!("it cannot be run: {e}"))?;
            let (_, scores) =
                scores.into_shape_vec::<f32, 3>().map_err(|e| format!("its output is not a list of scores: {e}"))?;
            Ok(scores)
        }
    }
}

#[cfg(not(feature = "ner"))]
mod absent {
    /// No model can be loaded, so there is none to run.
    pub(in super::super) enum Network {}

    impl Network {
        pub fn load(_: Vec<u8>, _: usize, _: usize, _: usize) -> Result<Self, String> {
            Err("this build cannot run models: build with `--features ner`, or remove [redact.model]".into())
        }

        pub fn run(&self, _: &[i32]) -> Result<Vec<f32>, String> {
            match *self {}
        }
    }
}
