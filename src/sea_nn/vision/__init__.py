"""Pictures and picture classifiers: files in, models by name, what is shipped, where data lies.

``images`` turns a file into a model's input, ``models`` finds a classifier with its preprocessing
and class names, ``shipped`` has a small one with its inputs. What models there are (``names``) is
told without PyTorch. ``tiles`` are for pictures larger than a model takes, ``volumes`` for scans.
"""
