"""Control filters as hardware runs them, designed on the method's own objective rather than fitted to its taps.

    residual_power         what the error microphone hears in each band, for one or several conditions, and J
    second_order_sections  n biquads that minimise J, stable by construction
    short_fir              as many taps as the hardware has, at its own rate
    fixed_point            coefficients in a number format, with the loss, overflow bound and round-off noise
    realise                one call for all of it

Everything is NumPy and SciPy, judged in double precision; nothing here depends on a model.
"""
