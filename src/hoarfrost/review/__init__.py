"""The page on which people decide: `hoarfrost review`. A server of one page for one model, on this machine alone.

``judging`` asks the model about the images, in a process of its own. ``pictures`` has thumbnails and originals.
``session`` is what the page shows and what is decided there. ``server`` answers requests and refuses strangers.
``page/`` is the page: plain HTML, CSS and JavaScript.
"""
