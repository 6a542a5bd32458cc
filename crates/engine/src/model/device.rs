//! Devices and number types of a model, and their names.

use crate::kernels::{has_kernels_for, wide_type};
use anyhow::{Context, Result};
use base::bail_usage;
use candle_core::{DType, Device, DeviceLocation, Tensor};
use clap::ValueEnum;
use names::serde_as_str;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use strum::IntoStaticStr;

/// Device of the weights, and number type of matrices and activations. Vectors (gains, biases, λ) stay at least `f32`.
#[derive(Clone, Debug)]
pub struct Placement {
    pub device: Device,
    pub dtype: DType,
}

impl Default for Placement {
    /// `f32` on the CPU, which has kernels.
    fn default() -> Self {
        Self { device: Device::Cpu, dtype: DType::F32 }
    }
}

impl Placement {
    /// Returns `true` if the kernels compute; candle's own ops do otherwise.
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
    pub fn put(&self, weight: &Tensor) -> candle_core::Result<Tensor> {
        let dtype = if weight.rank() > 1 { self.dtype } else { wide_type(self.dtype) };
        // Converted first, so that less travels to the device.
        weight.to_dtype(dtype)?.to_device(&self.device)
    }
}

/// The device that computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    #[default]
    Cpu,
    /// The NVIDIA GPU of this number, with the feature `cuda`.
    Cuda(usize),
    /// Apple's GPU, with the feature `metal`.
    Metal,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            None if name == "cpu" => Ok(Self::Cpu),
            None if name == "cuda" => Ok(Self::Cuda(0)),
            None if name == "metal" => Ok(Self::Metal),
            Some(("cuda", number)) if number.parse::<u8>().is_ok() => Ok(Self::Cuda(number.parse().unwrap_or(0))),
            _ => Err(format!("`{name}` is not a device; there are cpu, cuda, cuda:1 and so on, and metal")),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Metal => f.write_str("metal"),
        }
    }
}

serde_as_str!(DeviceName);

/// The number type that a model computes in.
#[derive(Clone, Copy, Debug, ValueEnum, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Dtype {
    /// 32 bits
    #[default]
    F32,
    /// 16 bits; not on the CPU
    Bf16,
    /// 64 bits, to rule out rounding
    F64,
}

impl Dtype {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::BF16,
            Dtype::F64 => Self::F64,
        }
    }
}

/// Checks that this program was built for a device, and that the device has the number type.
///
/// # Errors
/// A usage error if not.
pub fn check(device: DeviceName, dtype: Dtype) -> Result<()> {
    let feature = match device {
        DeviceName::Cuda(_) if !cfg!(feature = "cuda") => "cuda",
        DeviceName::Metal if !cfg!(feature = "metal") => "metal",
        DeviceName::Metal if dtype == Dtype::F64 => bail_usage!("--dtype f64: Metal has no such numbers"),
        DeviceName::Cpu if dtype == Dtype::Bf16 => {
            bail_usage!("--dtype bf16: the CPU computes in f32 and f64; leave --dtype out for f32")
        }
        _ => return Ok(()),
    };
    bail_usage!(
        "--device {device}: this program was built without it; build one with it by `cargo build --release \
         --features {feature}`"
    )
}

/// Opens a device.
///
/// # Errors
/// As [`check`], or if there is no such device.
pub fn placement(name: DeviceName, dtype: Dtype) -> Result<Placement> {
    check(name, dtype)?;
    let device = match name {
        DeviceName::Cpu => Ok(Device::Cpu),
        DeviceName::Cuda(number) => Device::new_cuda(number),
        DeviceName::Metal => Device::new_metal(0),
    };
    let device = device.with_context(|| format!("--device {name} cannot be used"))?;
    Ok(Placement { device, dtype: dtype.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::exit_code;

    #[test]
    fn devices_have_names_that_read_back() {
        for (name, device) in [
            ("cpu", DeviceName::Cpu),
            ("cuda:0", DeviceName::Cuda(0)),
            ("cuda:3", DeviceName::Cuda(3)),
            ("metal", DeviceName::Metal),
        ] {
            assert_eq!((name.parse(), device.to_string()), (Ok(device), name.to_owned()));
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda:999"] {
            let error = bad.parse::<DeviceName>().unwrap_err();
            assert!(error.contains("cuda:1"), "{error}");
        }
    }

    #[test]
    fn a_device_that_the_program_was_not_built_for_is_a_usage_error_that_says_how_to_build_it() {
        for (device, feature, built) in [
            (DeviceName::Cuda(1), "cuda", cfg!(feature = "cuda")),
            (DeviceName::Metal, "metal", cfg!(feature = "metal")),
        ] {
            let told = check(device, Dtype::F32);
            if built {
                assert!(told.is_ok());
                continue;
            }
            let error = told.unwrap_err();
            assert!(error.to_string().contains(&format!("cargo build --release --features {feature}")), "{error}");
            assert_eq!(exit_code(&error), 2);
        }
    }

    #[test]
    fn the_cpu_has_kernels_for_f32_and_no_bf16() {
        for (dtype, has_kernels) in [(Dtype::F32, true), (Dtype::F64, false)] {
            assert_eq!(placement(DeviceName::Cpu, dtype).unwrap().has_kernels(), has_kernels);
        }
        let error = check(DeviceName::Cpu, Dtype::Bf16).unwrap_err();
        assert!(error.to_string().contains("f32 and f64"), "{error}");
        assert_eq!(exit_code(&error), 2);
    }
}
