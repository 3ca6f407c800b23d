"""From numbers to advice: rules over a session, each of which can name one cause.

What lives here: evidence (the session as rules see it), candidates and claims, the engine; `causes/` holds one module per
cause. Pure: a session and its report in, findings out.
"""
