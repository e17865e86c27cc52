"""Calls as Python reads them: pythonic.py >pythonic.json. The first turns are those of vLLM's tests of Llama 4's format."""
import ast
import json

TURNS = [
    "[get_weather(city='LA', metric='C')]",
    "[register_user(name='Doe', age=9, address={'city': 'LA', 'state': 'CA'}, role=None, passed_test=True, "
    "aliases=['John', 'Johnny'])]",
    "[get_weather()]",
    "[do_something_cool(additional_data={})]",
    "[do_something_cool(steps=[])]",
    r"[get_weather(city='Martha\'s Vineyard', metric='\"cool units\"')]",
    "[get_weather(city='LA',metric='C'),register_user(name='Doe',age=9)]",
    "<|python_start|>[get_weather(city='LA', metric='C')]<|python_end|>",
    "<|python_start|>[get_weather(city='LA', metric='C'), get_weather(), do_something_cool(steps=[])]<|python_end|>",
    r'''[python(code="x = 'a, b)'\nprint(f(1))")]''',
    r"[f(a='caf\xe9 \u2192 \U0001F600 \q \\x41', b=-1.5e3, c=[True, None, {'k': [0]}])] ",
]


def calls(turn):
    text = turn.replace("<|python_start|>", "").replace("<|python_end|>", "").strip()
    return [{"name": call.func.id, "arguments": {k.arg: ast.literal_eval(k.value) for k in call.keywords}}
            for call in ast.parse(text, mode="eval").body.elts]


print(json.dumps([{"turn": turn, "calls": calls(turn)} for turn in TURNS], indent=0, ensure_ascii=False))
