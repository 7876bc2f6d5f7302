"""The programs that a kit carries to another machine; see ``docs/kit.md``.

There they are the package ``dmlprep_kit``, beside ``run.py``, and need Python 3.9, numpy and onnxruntime-directml only.
Nothing here imports anything of dmlprep's but what travels with it.
"""
