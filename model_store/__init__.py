"""Weights on disk: published whole, named, verified on reading.

    store = ModelStore(folder)
    version = store.publish("pandar-prime-log-split03-seed1", checkpoint)
    checkpoint = store.load("generic")            # or "name@version", or an alias
    model = Model.on("cpu", checkpoint.parameters)
    checkpoint.golden.check(model)                # this machine designs the filter that was published

The manifest of a checkpoint describes the generator, its training and its scores. Only safetensors and JSON are read,
so that loading executes nothing.
"""
