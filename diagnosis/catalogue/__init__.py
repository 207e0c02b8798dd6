"""The catalogue: each cause declared once, by group; `diagnosis.causes` is the way in."""
