//! Where a model runs, and with what numbers.

use crate::ops::{has_kernels_for, wide_type, Products};
use candle_core::{DType, Device, DeviceLocation, Result, Tensor};

/// The device that weights are put on, and the number type of matrices there, which is that of activations. Vectors (gains,
/// biases, λ) are few and keep `f32`, or `f64`.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Where.
    pub device: Device,
    /// As what.
    pub dtype: DType,
    /// What the kernels multiply, where they compute: in projections and MLPs, and in attention.
    pub products: Products,
}

impl Default for Placement {
    /// `f32` on the CPU, which is what the kernels take.
    fn default() -> Self {
        Self::new(Device::Cpu, DType::F32)
    }
}

impl Placement {
    /// There, with these numbers, and products of `f32` in kernels.
    pub fn new(device: Device, dtype: DType) -> Self {
        Self { device, dtype, products: Products::F32 }
    }

    /// Whether the kernels compute there; if not, candle's own ops do.
    pub fn has_kernels(&self) -> bool {
        has_kernels_for(&self.device, self.dtype)
    }

    /// What computes there, and with what: `cpu f32`, `cpu f32, products of bf16`.
    pub fn name(&self) -> String {
        let device = match self.device.location() {
            DeviceLocation::Cpu => "cpu",
            DeviceLocation::Cuda { .. } => "cuda",
            DeviceLocation::Metal { .. } => "metal",
        };
        let products = match self.products {
            Products::F32 => "",
            Products::Bf16 => ", products of bf16",
        };
        format!("{device} {}{products}", self.dtype.as_str())
    }

    /// Puts a weight there.
    ///
    /// # Errors
    /// If the device has no room, or not this number type.
    pub fn put(&self, weight: &Tensor) -> Result<Tensor> {
        let dtype = if weight.rank() > 1 { self.dtype } else { wide_type(self.dtype) };
        // The other way round, twice as much of bf16 would travel.
        weight.to_dtype(dtype)?.to_device(&self.device)
    }
}
