//! AdamW (Loshchilov & Hutter 2019) with clipping of the global norm.
//!
//! candle-nn's AdamW has no clipping, and its moments cannot be saved, so that training could not resume.

use super::spec::OptimizerSpec;
use anyhow::{ensure, Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use engine::kernels::{numbers, with_values};
use std::collections::BTreeMap;

/// The optimiser: parameters by name, with their moments.
pub struct AdamW {
    spec: OptimizerSpec,
    slots: BTreeMap<String, Slot>,
    /// Number of updates.
    pub step: u64,
}

struct Slot {
    var: Var,
    first: Vec<f32>,
    second: Vec<f32>,
}

/// Gradients of all parameters, in the order of their names.
pub type Gradients = Vec<Vec<f32>>;

/// Added to the root of the second moment (PyTorch's default).
const EPSILON: f64 = 1e-8;

impl AdamW {
    /// Starts with zero moments for every variable.
    pub fn new(vars: &BTreeMap<String, Var>, spec: &OptimizerSpec) -> Self {
        let mut slots = BTreeMap::new();
        for (name, var) in vars {
            let zeros = vec![0.0; var.elem_count()];
            slots.insert(name.clone(), Slot { var: var.clone(), first: zeros.clone(), second: zeros });
        }
        Self { spec: spec.clone(), slots, step: 0 }
    }

    /// Adds the gradients of all parameters to `sum`; an empty `sum` becomes these gradients.
    ///
    /// # Errors
    /// If a parameter has no gradient, because an op dropped it.
    pub fn collect(&self, grads: &GradStore, sum: &mut Gradients) -> Result<()> {
        let first = sum.is_empty();
        for (i, (name, slot)) in self.slots.iter().enumerate() {
            let grad = grads.get(slot.var.as_tensor()).with_context(|| format!("{name} received no gradient"))?;
            with_values([grad], |[grad]| {
                if first {
                    sum.push(grad.to_vec())
                } else {
                    sum[i].iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad)
                }
            })?;
        }
        Ok(())
    }

    /// Updates the parameters at a learning rate. Returns the norm of the gradient before clipping.
    ///
    /// # Errors
    /// If the gradient is not finite; the parameters are then unchanged.
    pub fn update(&mut self, gradients: &Gradients, rate: f64) -> Result<f64> {
        let squares: f64 = gradients.iter().flatten().map(|&g| f64::from(g) * f64::from(g)).sum();
        let norm = squares.sqrt();
        ensure!(norm.is_finite(), "the gradient norm is {norm}; lower optimizer.rate, and begin again in a new folder");
        let clip = if norm > self.spec.clip { self.spec.clip / norm } else { 1.0 } as f32;
        self.step += 1;
        let b1 = self.spec.beta1 as f32;
        let b2 = self.spec.beta2 as f32;
        let first_bias = 1.0 - self.spec.beta1.powi(self.step as i32);
        let second_bias = 1.0 - self.spec.beta2.powi(self.step as i32);
        for (slot, gradient) in self.slots.values_mut().zip(gradients) {
            let decay = if slot.var.rank() >= 2 { (rate * self.spec.weight_decay) as f32 } else { 0.0 };
            let mut values = numbers(&slot.var)?;
            let moments = slot.first.iter_mut().zip(&mut slot.second);
            for ((value, gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
                let gradient = gradient * clip;
                *first = b1 * *first + (1.0 - b1) * gradient;
                *second = b2 * *second + (1.0 - b2) * gradient * gradient;
                let scale = (f64::from(*second) / second_bias).sqrt() + EPSILON;
                *value -= decay * *value + (rate * f64::from(*first) / first_bias / scale) as f32;
            }
            let updated = Tensor::from_vec(values, slot.var.shape(), slot.var.device())?;
            slot.var.set(&updated.to_dtype(slot.var.dtype())?)?;
        }
        Ok(norm)
    }

    /// Parameters and moments as named tensors: `NAME`, `NAME.first`, `NAME.second`.
    ///
    /// # Errors
    /// If a tensor cannot be allocated.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let mut tensors = Vec::new();
        for (name, slot) in &self.slots {
            for (moment, values) in [("first", &slot.first), ("second", &slot.second)] {
                let values = Tensor::from_vec(values.clone(), slot.var.shape(), slot.var.device())?;
                tensors.push((format!("{name}.{moment}"), values));
            }
            tensors.push((name.clone(), slot.var.as_detached_tensor().copy()?));
        }
        Ok(tensors)
    }

    /// Restores parameters and moments from [`AdamW::state`], and the number of updates.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape; nothing is then changed.
    pub fn restore(&mut self, mut state: engine::model::Weights, step: u64) -> Result<()> {
        let mut taken = Vec::new();
        for (name, slot) in &self.slots {
            let dims = slot.var.dims();
            let values = state.take_shaped(name, dims)?;
            let first = state.take_shaped(&format!("{name}.first"), dims)?;
            let second = state.take_shaped(&format!("{name}.second"), dims)?;
            taken.push([values, first, second]);
        }
        for (slot, [values, first, second]) in self.slots.values_mut().zip(taken) {
            slot.var.set(&values)?;
            slot.first = first.flatten_all()?.to_vec1()?;
            slot.second = second.flatten_all()?.to_vec1()?;
        }
        self.step = step;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use engine::model::Weights;

    fn adamw(shape: (usize, usize)) -> AdamW {
        let var = Var::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        AdamW::new(&BTreeMap::from([("w".to_owned(), var)]), &OptimizerSpec::default())
    }

    #[test]
    fn moments_of_another_shape_are_refused_by_name_and_change_nothing() {
        let mut ours = adamw((2, 3));
        ours.update(&vec![vec![1.0; 6]], 0.1).unwrap();
        let before = numbers(&ours.slots["w"].var).unwrap();
        for name in ["w", "w.first", "w.second"] {
            let of = |(other, tensor): (String, Tensor)| {
                if other == name {
                    (other, tensor.reshape((3, 2)).unwrap())
                } else {
                    (other, tensor)
                }
            };
            let state = adamw((2, 3)).state().unwrap().into_iter().map(of);
            let error = ours.restore(Weights::new(state, "state.safetensors"), 9).unwrap_err().to_string();
            let words = format!("state.safetensors: tensor {name} has shape [3, 2], expected [2, 3]");
            assert!(error.contains(&words), "{error}");
            assert_eq!((ours.step, numbers(&ours.slots["w"].var).unwrap()), (1, before.clone()));
        }
        ours.restore(Weights::new(adamw((2, 3)).state().unwrap(), "state.safetensors"), 9).unwrap();
        assert_eq!((ours.step, numbers(&ours.slots["w"].var).unwrap()), (9, vec![0.0; 6]));
    }
}
