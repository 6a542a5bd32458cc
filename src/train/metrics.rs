//! The metrics of training, which its records hold. Under their names, in their order, they are the columns of `course.csv`.

use names::catalogue;
use names::metric::{self, metric, Metric};

catalogue! {
    TEXT_NLL = metric("text_nats", "NLL of text",
        "Mean negative log-likelihood of ordinary text since the line before.").unit("nats");
    FIRST_DIGIT_NLL = metric("digit1_nats", "NLL of first digits",
        "The same of the first digits of numbers that the context has stated.").unit("nats");
    FIRST_DIGITS = metric("digit1_hit", "first digits", "Share of these first digits that are predicted.").rate();
    GRAD_NORM = metric("grad_norm", "gradient norm", "Norm of the gradient before clipping: in logs, a mean over steps.");
    GRAD_NORM_QK = metric("grad_norm_qk", "gradient norm of q and k",
        "Norm of the last step's gradient of all query and key projections together.");
    GRAD_NORM_VO = metric("grad_norm_vo", "gradient norm of v and o",
        "Norm of the last step's gradient of all value and output projections together.");
    CONTEXT_RMS = metric("context_rms", "context RMS",
        "Root mean square of the attention mixture before the head norm, mean over layers and heads.");
    CONTEXT_RMS_LEAST = metric("context_rms_least", "least head's context RMS",
        "Root mean square of the mixture of the head with the smallest one.");
    LAMBDA = metric::LAMBDA;
    ONE_NEEDLE = metric("one_needle", "one needle", "Accuracy on unseen prompts with one needle.").rate();
    TWO_NEEDLES = metric("two_needles", "two needles", "Accuracy on unseen prompts with two needles, both asked for.").rate();
    MOST_NEEDLES = metric("most_needles", "most needles",
        "Accuracy on unseen prompts with the most needles in `watch.needles`, two of them asked for.").rate();
    HELDOUT_NLL = metric("heldout_nats", "NLL of held-out texts",
        "Mean negative log-likelihood of a token in documents of people's texts that are held out.").unit("nats");
}
