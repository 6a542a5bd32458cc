//! Matrix products on strided views, on the calling thread.

use gemm::Parallelism;
use std::ops::Range;

/// A read-only matrix view: element (r, c) is `data[r * row_stride + c * col_stride]`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    pub(super) data: &'a [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

/// A writable matrix view with unit column stride.
pub(crate) struct MatMut<'a> {
    pub(super) data: &'a mut [f32],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
}

/// Returns `true` if a row-major view fits in `len` numbers. Sizes that overflow do not fit.
fn fits(rows: usize, cols: usize, row_stride: usize, len: usize) -> bool {
    let last_row = rows.saturating_sub(1).checked_mul(row_stride);
    last_row.and_then(|start| start.checked_add(cols.saturating_sub(1))).is_some_and(|last| last < len)
}

impl<'a> Mat<'a> {
    /// A row-major view of `rows` x `cols` whose rows start `row_stride` apart.
    ///
    /// # Panics
    /// If the view does not fit in `data`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(rows, cols, row_stride, data.len()), "matrix view out of bounds");
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// A range of rows and columns, without a copy.
    ///
    /// # Panics
    /// If there are fewer rows or columns.
    pub(super) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && cols.end <= self.cols, "matrix view out of bounds");
        let data = &self.data[rows.start * self.row_stride + cols.start * self.col_stride..];
        Self { data, rows: rows.len(), cols: cols.len(), ..self }
    }

    /// The transpose, without a copy.
    pub fn t(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

impl<'a> MatMut<'a> {
    /// A row-major writable view.
    ///
    /// # Panics
    /// If the view does not fit in `data` or its rows overlap.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(rows, cols, row_stride, data.len()), "matrix view out of bounds");
        assert!(rows <= 1 || row_stride >= cols, "rows of a writable matrix overlap");
        Self { data, rows, cols, row_stride }
    }
}

/// `dst = a @ b`, or `dst += a @ b` with `add`.
///
/// # Panics
/// If the shapes do not agree.
#[expect(unsafe_code, reason = "gemm takes pointers")]
pub(crate) fn multiply(dst: MatMut<'_>, add: bool, a: Mat<'_>, b: Mat<'_>) {
    assert_eq!((dst.rows, dst.cols, a.cols), (a.rows, b.cols, b.rows), "shapes of a matrix product do not agree");
    // SAFETY: the constructors have checked that every element of the three views lies inside its slice, `dst` is
    // borrowed mutably and so aliases neither input, and the shapes agree.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.cols,
            a.cols,
            dst.data.as_mut_ptr(),
            1,
            dst.row_stride as isize,
            add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None, // callers split the work, at boundaries that do not depend on the number of threads
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_no_memory_holds_does_not_fit() {
        assert!(fits(3, 4, 4, 12) && !fits(3, 4, 4, 11) && !fits(1, 1, 1, 0));
        // The end of 2^63 + 1 rows of 2 would wrap around to 1.
        assert!(!fits((1 << 63) + 1, 2, 2, 12) && !fits(2, usize::MAX, usize::MAX, 12));
    }
}
