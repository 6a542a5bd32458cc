//! Device and number types of a model.

use crate::kernels::{has_kernels_for, wide_type, Products};
use candle_core::{DType, Device, DeviceLocation, Result, Tensor};

/// Device of the weights, and number type of matrices and activations. Vectors (gains, biases, λ) stay at least `f32`.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The device.
    pub device: Device,
    /// The number type.
    pub dtype: DType,
    /// Operands of the kernels' products in projections, MLPs and attention.
    pub products: Products,
}

impl Default for Placement {
    /// `f32` on the CPU, which has kernels.
    fn default() -> Self {
        Self::new(Device::Cpu, DType::F32)
    }
}

impl Placement {
    /// Creates a placement with `f32` products.
    pub fn new(device: Device, dtype: DType) -> Self {
        Self { device, dtype, products: Products::F32 }
    }

    /// Returns whether the kernels compute; candle's own ops do otherwise.
    pub fn has_kernels(&self) -> bool {
        has_kernels_for(&self.device, self.dtype)
    }

    /// Description of device and number type: `cpu f32`.
    pub fn name(&self) -> String {
        let device = match self.device.location() {
            DeviceLocation::Cpu => "cpu",
            DeviceLocation::Cuda { .. } => "cuda",
            DeviceLocation::Metal { .. } => "metal",
        };
        format!("{device} {}", self.dtype.as_str())
    }

    /// Moves a weight to the device, in its number type.
    pub fn put(&self, weight: &Tensor) -> Result<Tensor> {
        let dtype = if weight.rank() > 1 { self.dtype } else { wide_type(self.dtype) };
        // Converted first, so that less travels to the device.
        weight.to_dtype(dtype)?.to_device(&self.device)
    }
}
