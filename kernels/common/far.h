// Pixels outside the image hold FAR: a patch that reaches them has a distance above FAR_KEY and is no match. Finite,
// so that no NaN can arise; its square still fits a float.
#define FAR 1.0e17f
