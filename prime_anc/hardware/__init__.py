"""Control filters as hardware runs them, designed on the method's objective J rather than fitted to its taps.

    residual_power         power at the error microphone per band, for one or several conditions, and J
    second_order_sections  n biquads that minimise J, stable by construction
    short_fir              a given number of taps at the hardware's sample rate
    fixed_point            coefficients in a number format: loss, overflow bound and round-off noise
    realise                design and quantise in one call

Everything is NumPy and SciPy in double precision; nothing here depends on a model.
"""
