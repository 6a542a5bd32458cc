//! Names of devices and number types.

use crate::bail_usage;
use crate::model::Placement;
use crate::ops::Products;
use crate::serde_as_str::serde_as_str;
use anyhow::{Context, Result};
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use strum::IntoStaticStr;

/// The device that computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor.
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

/// The number type of weights and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Precision {
    /// 32 bits, the type of the CPU's kernels.
    #[default]
    F32,
    /// 16 bits, 8 of them significant; sums, norms and attention in 32 bits.
    Bf16,
    /// 64 bits.
    F64,
}

impl Precision {
    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Size of a number in bytes.
    pub fn bytes(self) -> u64 {
        self.dtype().size_in_bytes() as u64
    }

    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F64 => DType::F64,
        }
    }
}

/// Checks that a device, a number type and products fit together on any machine.
///
/// # Errors
/// A usage error if they do not.
pub fn check_alike(device: DeviceName, precision: Precision, products: Products) -> Result<()> {
    if products != Products::F32 && (device, precision) != (DeviceName::Cpu, Precision::F32) {
        bail_usage!("`precision` bf16 is what the CPU's kernels multiply, which take `device` cpu and `dtype` f32");
    }
    Ok(())
}

/// Checks that this processor has fast kernels for the products.
///
/// # Errors
/// A usage error if it has none, or if the device and the number type have no kernels.
pub fn check_products(device: DeviceName, precision: Precision, products: Products) -> Result<()> {
    check_alike(device, precision, products)?;
    if products == Products::F32 {
        return Ok(());
    }
    if !products.are_fast() {
        bail_usage!("`precision` bf16: this processor does not have the instructions (AVX512-BF16); leave it out");
    }
    Ok(())
}

/// Checks that this program was built for a device, and that the device has the number type.
///
/// # Errors
/// A usage error if not.
pub fn check(device: DeviceName, precision: Precision) -> Result<()> {
    let feature = match device {
        DeviceName::Cuda(_) if !cfg!(feature = "cuda") => "cuda",
        DeviceName::Metal if !cfg!(feature = "metal") => "metal",
        DeviceName::Metal if precision == Precision::F64 => bail_usage!("`dtype` f64: Metal has no such numbers"),
        _ => return Ok(()),
    };
    bail_usage!(
        "`device` {device}: this program was built without it; build one with it by `cargo build --release \
         --features {feature}`"
    )
}

/// Opens a device.
///
/// # Errors
/// As [`check`], or if there is no such device.
pub fn placement(name: DeviceName, precision: Precision) -> Result<Placement> {
    check(name, precision)?;
    let device = match name {
        DeviceName::Cpu => Ok(Device::Cpu),
        DeviceName::Cuda(number) => Device::new_cuda(number),
        DeviceName::Metal => Device::new_metal(0),
    };
    let device = device.with_context(|| format!("`device` {name} cannot be used"))?;
    Ok(Placement::new(device, precision.dtype()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit_code;

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
            let told = check(device, Precision::F32);
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
    fn the_kernels_are_for_one_precision_of_the_cpu() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F64] {
            let placement = placement(DeviceName::Cpu, precision).unwrap();
            assert_eq!(placement.has_kernels(), precision == Precision::F32);
            assert_eq!(placement.dtype.size_in_bytes() as u64, precision.bytes());
        }
    }
}
