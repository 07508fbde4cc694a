// Pixels outside the image hold FAR. A patch that reaches them has a distance above FAR_KEY and is never a match. FAR is
// finite so that no NaN can arise, and its square fits a float.
#define FAR 1.0e17f
