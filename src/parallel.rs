//! Tasks side by side, their results in order, where a task is more than a loop of a kernel.

use rayon::prelude::*;
use std::sync::Mutex;

/// What `run` makes of 0..`tasks`, in this order. Tasks are given out one by one, so that long ones do not wait for each other.
pub(crate) fn in_parallel<T: Send>(tasks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results: Vec<Mutex<Option<T>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
    each(tasks, &|task| *results[task].lock().expect("a task writes its own result") = Some(run(task)));
    let result = |result: Mutex<Option<T>>| result.into_inner().expect("a panic would have come out of the task");
    results.into_iter().map(|task| result(task).expect("every task has run")).collect()
}

/// [`in_parallel`] over the items of a list.
pub(crate) fn map_in_parallel<I: Sync, T: Send>(items: &[I], run: impl Fn(&I) -> T + Sync) -> Vec<T> {
    in_parallel(items.len(), |i| run(&items[i]))
}

/// Runs 0..`tasks`. Not generic: what rayon makes of one kind of task takes a tenth of a second to compile.
fn each(tasks: usize, run: &(dyn Fn(usize) + Sync)) {
    (0..tasks).into_par_iter().with_max_len(1).for_each(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_tasks() {
        let slow_at_first = |i: usize| (0..(100 - i) * 1000).fold(i, |x, _| std::hint::black_box(x));
        assert_eq!(in_parallel(100, slow_at_first), (0..100).collect::<Vec<_>>());
        assert_eq!(map_in_parallel(&["a", "b"], |text| text.len()), [1, 1]);
        assert!(in_parallel(0, |i| i).is_empty());
    }

    #[test]
    #[should_panic(expected = "this task")]
    fn a_panic_comes_out_as_it_is() {
        in_parallel(4, |i| assert_ne!(i, 2, "this task"));
    }
}
